// Draws the widgets of a page, where no Python runs: each is an anywidget, whose script,
// style and values stand in the page. Jupyter's own manager of widgets would do the same
// with a hundred times the weight, and could not be read from a disk.
(function () {
  const read = (type) => [
    ...document.querySelectorAll(`script[type="application/vnd.jupyter.widget-${type}+json"]`),
  ];

  // What a widget may ask of its values: https://anywidget.dev/en/afm/
  function modelOf(values) {
    const listeners = new Map();
    return {
      get: (name) => values[name],
      set(name, value) {
        if (Object.is(values[name], value)) return;
        values[name] = value;
        for (const listener of listeners.get(`change:${name}`) ?? []) listener();
      },
      on(names, listener) {
        for (const name of names.split(" ")) {
          if (!listeners.has(name)) listeners.set(name, new Set());
          listeners.get(name).add(listener);
        }
      },
      off(names, listener) {
        for (const name of names.split(" ")) listeners.get(name)?.delete(listener);
      },
      save_changes() {},
      send() {}, // to a kernel, and there is none
    };
  }

  function addStyle(name, text) {
    if (document.getElementById(name)) return;
    const style = document.createElement("style");
    style.id = name;
    style.textContent = text;
    document.head.append(style);
  }

  async function draw(view, values) {
    const el = document.createElement("div");
    el.className = "jupyter-widgets";
    view.before(el);
    if (values._css) addStyle(`style-${values._anywidget_id}`, values._css);
    const script = new Blob([values._esm], { type: "text/javascript" });
    const address = URL.createObjectURL(script);
    const widget = (await import(address)).default;
    URL.revokeObjectURL(address);
    await widget.render({ model: modelOf(values), el });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const states = Object.assign(
      {},
      ...read("state").map((script) => JSON.parse(script.textContent).state),
    );
    for (const view of read("view")) {
      draw(view, states[JSON.parse(view.textContent).model_id].state);
    }
  });
})();
