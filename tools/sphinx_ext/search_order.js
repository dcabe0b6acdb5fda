// In which order a search shows what it found: names of the library that are just what
// was asked for, then chapters, in the order of reading (those with the words in the title
// before all), then names that only contain it, and other pages.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , anchor, , score]) => {
    const chapter = /^notebooks\/(\w+?)_/.exec(page)?.[1];
    if (!chapter) return score;
    const place = /^\d+$/.test(chapter) ? Number(chapter) : 50;
    return score + (anchor ? 3 : 7.5) - place / 100;
  },
};
