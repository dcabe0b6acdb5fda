// Loaded between require.js and the widget manager: where widgets find their code,
// and two things that the widget manager leaves out on a plain page.
(function () {
  const here = new URL(".", document.currentScript.src).href;
  window.requirejs.config({
    baseUrl: here + "vendor",
    map: { "*": { anywidget: here + "vendor/anywidget.js" } },
  });

  // The widget manager speaks to MathJax 2, the book loads MathJax 3, which puts a
  // new object in place of the old one: so each that is put there gets a Hub.
  function addHub(mathjax) {
    if (!mathjax || mathjax.Hub) return;
    mathjax.Hub = {
      Queue(call) {
        const element = call[2];
        element.classList.add("mathjax_process");
        const typeset = () => window.MathJax.typesetPromise([element]);
        const startup = window.MathJax.startup;
        if (startup && startup.promise) startup.promise.then(typeset);
        else window.addEventListener("load", () =>
          window.MathJax.startup?.promise?.then(typeset));
      },
    };
  }
  let mathjax = window.MathJax || {};
  addHub(mathjax);
  Object.defineProperty(window, "MathJax", {
    configurable: true,
    enumerable: true,
    get: () => mathjax,
    set(value) {
      mathjax = value;
      addHub(mathjax);
    },
  });

  // A slider is announced by the label that stands beside it.
  function nameSliders(root) {
    for (const handle of root.querySelectorAll('.noUi-handle[role="slider"]')) {
      if (handle.hasAttribute("aria-label")) continue;
      const box = handle.closest(".jupyter-widgets");
      const label = box && box.querySelector(".widget-label");
      const text = label && label.textContent.trim();
      if (text) handle.setAttribute("aria-label", text);
    }
  }
  document.addEventListener("DOMContentLoaded", () => {
    nameSliders(document);
    new MutationObserver(() => nameSliders(document)).observe(document.body, {
      childList: true,
      subtree: true,
    });
  });
})();
