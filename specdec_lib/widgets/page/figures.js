// Figures drawn beforehand, one for each combination of the sliders' stops.

function render({ model, el }) {
  const picture = element("div");
  const caption = element("figcaption", { "aria-live": "polite" });
  const show = () => {
    const at = model
      .get("sliders")
      .reduce((page, { texts }, i) => page * texts.length + model.get("indices")[i], 0);
    const text = model.get("descriptions")[at];
    picture.innerHTML = model.get("figures")[at];
    const svg = picture.querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", text);
    caption.textContent = text;
  };
  const bound = sliders(model, show);
  show();
  el.classList.add("specdec-widget");
  el.append(
    bound.box,
    element("figure", { class: "specdec-figure" }, picture, caption),
  );
  return bound.close;
}

export default { render };
