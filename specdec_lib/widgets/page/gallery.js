// Lines of code with and without a fault, and a figure of what the fault does.

// What of a text is not in the other one, between what both begin and end with.
function difference(text, other) {
  const least = Math.min(text.length, other.length);
  let first = 0;
  while (first < least && text[first] === other[first]) first += 1;
  let last = 0;
  while (last < least - first && text.at(-1 - last) === other.at(-1 - last)) last += 1;
  const end = text.length - last;
  return [text.slice(0, first), text.slice(first, end), text.slice(end)];
}

function version(name) {
  const code = element("code");
  const box = element("div", { class: "specdec-version", role: "group" });
  box.setAttribute("aria-label", name);
  box.append(element("p", {}, name), element("pre", {}, code));
  const show = (text, other) => {
    const [before, changed, after] = difference(text, other);
    const mark = changed ? [element("mark", {}, changed)] : [];
    code.replaceChildren(before, ...mark, after);
  };
  return { box, show };
}

function render({ model, el }) {
  const [{ label, texts }] = model.get("sliders");
  const id = "specdec-" + Math.random().toString(36).slice(2);
  const list = element(
    "select",
    // JupyterLab would take the arrow keys for itself.
    { id, "data-lm-suppress-shortcuts": "true" },
    ...texts.map((text) => element("option", {}, text)),
  );
  const right = version("The library");
  const wrong = version("With the fault");
  const picture = element("div");
  const caption = element("figcaption", { "aria-live": "polite" });
  const show = () => {
    const at = model.get("indices")[0];
    list.selectedIndex = at;
    const [is, becomes] = model.get("codes")[at];
    right.show(is, becomes);
    wrong.show(becomes, is);
    picture.innerHTML = model.get("figures")[at];
    caption.textContent = model.get("descriptions")[at];
  };
  list.addEventListener("change", () => {
    model.set("indices", [list.selectedIndex]);
    model.save_changes();
  });
  model.on("change:indices", show);
  show();
  el.classList.add("specdec-widget");
  el.append(
    element("div", { class: "specdec-choice" }, element("label", { for: id }, label), list),
    element("div", { class: "specdec-versions" }, right.box, wrong.box),
    element("figure", { class: "specdec-figure" }, picture, caption),
  );
  return () => model.off("change:indices", show);
}

export default { render };
