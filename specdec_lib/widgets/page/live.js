// Text decoded by the kernel at each move of a slider; still where there is no kernel.

function render({ model, el }) {
  const text = element("p", { class: "specdec-text" });
  const legend = element("p", { class: "specdec-legend" });
  const progress = element("span", { class: "specdec-progress" });
  const summary = element("p", { role: "status", class: "specdec-summary" });
  const note = element("p", { class: "specdec-note" }, model.get("note"));

  const write = () =>
    writeTokens(text, legend, model.get("prompt"), model.get("tokens"));
  const say = () => {
    progress.textContent = model.get("progress");
    if (summary.textContent !== model.get("summary")) {
      summary.textContent = model.get("summary");
    }
  };
  const bound = sliders(model, () => {});
  for (const input of bound.inputs) input.disabled = true;
  const answered = (message) => {
    if (message.kind !== "ready") return;
    for (const input of bound.inputs) input.disabled = false;
    note.hidden = true;
  };
  model.on("change:tokens", write);
  model.on("change:summary change:progress", say);
  model.on("msg:custom", answered);
  write();
  say();
  el.classList.add("specdec-widget");
  el.append(note, bound.box, summary, progress, text, legend);
  model.send({ kind: "hello" });  // a kernel answers, a page without one does not
  return () => {
    bound.close();
    model.off("change:tokens", write);
    model.off("change:summary change:progress", say);
    model.off("msg:custom", answered);
  };
}

export default { render };
