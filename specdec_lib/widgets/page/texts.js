// Texts decoded beforehand, one for each combination of the sliders' stops.

function render({ model, el }) {
  const text = element("p", { class: "specdec-text" });
  const legend = element("p", { class: "specdec-legend" });
  const summary = element("p", { role: "status", class: "specdec-summary" });
  const names = Object.keys(MARKS);
  const show = () => {
    const at = model
      .get("sliders")
      .reduce((page, { texts }, i) => page * texts.length + model.get("indices")[i], 0);
    const { place, kinds, summary: said } = model.get("runs")[at];
    const { prompt, pieces } = model.get("texts")[place];
    const tokens = pieces.map((piece, i) => [piece, names[Number(kinds[i])]]);
    writeTokens(text, legend, prompt, tokens);
    summary.textContent = said;
  };
  const bound = sliders(model, show);
  show();
  el.classList.add("specdec-widget");
  el.append(bound.box, summary, text, legend);
  return bound.close;
}

export default { render };
