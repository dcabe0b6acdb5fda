// What paper shows of an open page: its article, drawn and standing still. Returns the
// article as HTML and the style rules that scripts have added to the page.
//
// `own` begins every id of this page in the book, `pages` says so for all of its pages,
// by address; `base` is the address of the site.
async ({ own, pages, base }) => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const article = document.querySelector("article.bd-article");
  const all = (selector) => [...article.querySelectorAll(selector)];

  // Formulas are pictures to who does not see them, and are read as they are typed.
  for (const item of window.MathJax?.startup?.document?.math ?? []) {
    const root = item.typesetRoot;
    if (!article.contains(root)) continue;
    root.querySelector("mjx-assistive-mml")?.remove();
    root.removeAttribute("tabindex");
    root.setAttribute("role", "img");
    root.setAttribute("aria-label", item.math.trim().replace(/\s+/g, " "));
  }

  // Code is many thousand pieces, each of them a node of the tagged print: those that
  // look like what is around them are taken out of their marks.
  const LOOK = ["color", "fontWeight", "fontStyle", "fontSize", "textDecorationLine"];
  const plain = [];
  for (const piece of all("pre span, code span, dt.sig span")) {
    if (piece.id || piece.closest("svg, mjx-container")) continue;
    const [its, around] = [piece, piece.parentElement].map((e) => getComputedStyle(e));
    if (its.display === "inline" && LOOK.every((name) => its[name] === around[name]))
      plain.push(piece);
  }
  for (const piece of plain) piece.replaceWith(...piece.childNodes);
  article.normalize();

  // What is to be pressed, moved or copied, and nothing on paper.
  for (const useless of all(
    "script, button, .headerlink, .copybtn, .sd-run, .sd-pdf, .toctree-wrapper, " +
      ".sd-ct-skip, .sd-ct-hint, .specdec-slider input, .specdec-note, " +
      ".toggle-details__summary, summary > svg, summary .sd-summary-state-marker",
  )) {
    useless.remove();
  }
  // A text that is longer than half a page may go on at the next.
  for (const pre of all("pre")) {
    if (pre.textContent.trimEnd().split("\n").length <= 32) continue;
    pre.classList.add("sd-long");
    pre.closest(".cell_input")?.classList.add("sd-long");
  }
  // What is folded away is open.
  for (const details of all("details")) {
    const opened = document.createElement("div");
    opened.className = "sd-opened";
    for (const part of [...details.childNodes]) {
      if (part.nodeName !== "SUMMARY") {
        opened.append(part);
        continue;
      }
      const name = document.createElement("p");
      name.className = "sd-opened-name";
      name.textContent = part.textContent.trim();
      if (!details.matches(".hide")) opened.append(name); // "Show code cell source"
    }
    details.replaceWith(opened);
  }
  for (const folded of all(".dropdown, .toggle, .toggle-hidden")) {
    folded.classList.remove("dropdown", "toggle", "toggle-hidden", "toggle-shown");
  }
  for (const reachable of all("[tabindex]")) reachable.removeAttribute("tabindex");
  for (const said of all("[aria-live]")) said.removeAttribute("aria-live");
  // A slider's name and where it stands are words like others.
  for (const readout of all(".specdec-readout")) readout.removeAttribute("aria-hidden");
  for (const label of all(".specdec-slider label")) {
    const name = document.createElement("span");
    name.className = "sd-slider-name";
    name.append(...label.childNodes);
    label.replaceWith(name);
  }

  for (const list of all("select")) {
    const chosen = document.createElement("strong");
    chosen.textContent = list.selectedOptions[0]?.textContent ?? "";
    list.replaceWith(chosen);
  }
  for (const label of all("label")) {
    const name = document.createElement("span");
    name.append(...label.childNodes);
    label.replaceWith(name);
  }

  // Solutions stand together at the end of the chapter.
  const solutions = all("div.solution");
  if (solutions.length) {
    const section = document.createElement("section");
    section.id = "solutions-of-the-exercises";
    const title = document.createElement("h2");
    title.textContent = "Solutions";
    section.append(title);
    for (const solution of solutions) {
      // An exercise is followed by its solution: each leads to the other.
      let before = solution.previousElementSibling;
      while (before && !before.matches("div.exercise")) before = before.previousElementSibling;
      const exercise = before;
      if (exercise) {
        const number = exercise.querySelector(".caption-number")?.textContent.trim() ?? "";
        const words = exercise.querySelector(".admonition-title");
        const to = document.createElement("p");
        to.className = "sd-to-solution";
        to.innerHTML = `Solution: <a href="#${solution.id}">page <span data-page-of="${solution.id}"></span></a>`;
        exercise.append(to);
        const heading = solution.querySelector(".admonition-title");
        heading.innerHTML = `<a href="#${exercise.id}">Solution of ${number.toLowerCase()}</a> `;
        const named = words?.textContent.replace(number, "").trim();
        if (named) heading.append(named);
      }
      section.append(solution);
    }
    const last = article.querySelector(".sd-in-the-library");
    if (last) last.after(section);
    else article.querySelector("section").append(section);
  }

  // Places: every id is the book's, not the page's.
  const at = (id) => `${own}--${id}`;
  const LISTS = ["aria-labelledby", "aria-describedby", "aria-controls", "headers"];
  for (const element of all("*")) {
    if (element.id) element.id = at(element.id);
    if (element.dataset.pageOf) element.dataset.pageOf = at(element.dataset.pageOf);
    for (const name of [...LISTS, "for"]) {
      const value = element.getAttribute(name);
      if (value) element.setAttribute(name, value.split(/\s+/).map(at).join(" "));
    }
    if (element.closest("svg")) {
      for (const { name, value } of [...element.attributes]) {
        if (name.endsWith("href") && value.startsWith("#")) {
          element.setAttribute(name, `#${at(value.slice(1))}`);
        } else if (value.includes("url(#")) {
          element.setAttribute(name, value.replace(/url\(#/g, `url(#${own}--`));
        }
      }
    }
  }

  // Links: into the book where it has the page, to another server as they are, and
  // words without a link where they lead to what is on the site alone.
  for (const link of all("a[href]")) {
    const { href } = link;
    if (!href.startsWith(base)) {
      if (/^(https?|mailto):/.test(href) && new URL(href).hostname !== "localhost") continue;
    } else {
      const [page, id] = href.slice(base.length).split("#");
      const target = pages[decodeURI(page)];
      if (target) {
        link.setAttribute("href", id ? `#${target}--${decodeURIComponent(id)}` : `#${target}`);
        link.removeAttribute("target");
        link.removeAttribute("title");
        continue;
      }
      if (/^_images\//.test(page)) {
        link.replaceWith(...link.childNodes); // a picture that leads to itself
        continue;
      }
    }
    const plain = document.createElement("span");
    plain.className = "sd-no-link";
    plain.append(...link.childNodes);
    link.replaceWith(plain);
  }
  for (const link of all("a:not([href])")) {
    const plain = document.createElement("span");
    if (link.id) plain.id = link.id;
    plain.append(...link.childNodes);
    link.replaceWith(plain);
  }
  for (const picture of all("img")) {
    picture.setAttribute("src", new URL(picture.src).pathname);
    picture.removeAttribute("loading");
  }

  // The book's headings begin with its parts: those of a page are one step lower.
  for (const level of [5, 4, 3, 2, 1]) {
    for (const heading of all(`h${level}`)) {
      const lower = document.createElement(`h${level + 1}`);
      for (const { name, value } of [...heading.attributes]) lower.setAttribute(name, value);
      lower.classList.add(`sd-h${level}`);
      lower.append(...heading.childNodes);
      heading.replaceWith(lower);
    }
  }

  const rules = [];
  for (const sheet of document.styleSheets) {
    const id = sheet.ownerNode?.id ?? "";
    if (/^(MJX-CHTML-styles|style-)/.test(id)) {
      rules.push(...[...sheet.cssRules].map((rule) => rule.cssText));
    }
  }
  return { html: article.innerHTML, rules };
}
