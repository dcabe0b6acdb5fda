// What all widgets of the book share. A plain module without imports: Python puts this
// text before that of a widget (see _base.py).

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A visible name, the slider, and what it stands at. `texts` are the stops.
export function slider({ label, texts }, index, moved) {
  const id = "specdec-" + Math.random().toString(36).slice(2);
  const input = element("input", {
    id,
    type: "range",
    min: 0,
    max: texts.length - 1,
    step: 1,
    // JupyterLab would take the arrow keys for itself.
    "data-lm-suppress-shortcuts": "true",
  });
  const readout = element("span", { class: "specdec-readout", "aria-hidden": "true" });
  // As wide as its longest text, so that nothing shifts under the finger.
  readout.style.minWidth = Math.max(...texts.map((text) => text.length)) + "ch";
  const show = (at) => {
    input.value = at;
    input.setAttribute("aria-valuetext", texts[at]);
    readout.textContent = texts[at];
  };
  show(index);
  input.addEventListener("input", () => {
    show(Number(input.value));
    moved(Number(input.value));
  });
  const box = element(
    "div",
    { class: "specdec-slider" },
    element("label", { for: id }, label),
    input,
    readout,
  );
  return { box, input, show };
}

// The sliders of a model, bound to its `indices` both ways. `changed` is called after
// each move, whoever made it. Returns the box and what undoes the binding.
export function sliders(model, changed) {
  const indices = () => model.get("indices");
  const all = model.get("sliders").map((one, i) =>
    slider(one, indices()[i], (index) => {
      model.set("indices", indices().map((old, j) => (j === i ? index : old)));
      model.save_changes();
    }),
  );
  const follow = () => {
    all.forEach((one, i) => one.show(indices()[i]));
    changed();
  };
  model.on("change:indices", follow);
  const box = element("div", { class: "specdec-sliders" });
  box.append(...all.map((one) => one.box));
  return {
    box,
    inputs: all.map((one) => one.input),
    close: () => model.off("change:indices", follow),
  };
}
