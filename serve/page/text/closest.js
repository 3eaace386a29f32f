// The sentences of a passage that are closest to a statement: by shared words, weighted by rarity in the passage. They show
// where to look; whether a sentence supports the statement is for the reader to judge.

const MAX_SENTENCES = 3;
const MIN_SHARE = 0.1;
const PREFIX_LENGTH = 6;
const segmenter = (granularity) => (globalThis.Intl?.Segmenter ? new Intl.Segmenter(undefined, { granularity }) : null);
const bySentence = segmenter("sentence");
const byWord = segmenter("word");

/** The sentences of `text` as {text, from}; `from` is where the sentence begins, in UTF-16 units. */
export function sentences(text) {
  if (bySentence) return Array.from(bySentence.segment(text), ({ segment, index }) => ({ text: segment, from: index }));
  return Array.from(text.matchAll(/[^.!?。！？\n]*[.!?。！？\n]+\s*|[^.!?。！？\n]+$/g), (found) => ({ text: found[0], from: found.index }));
}

/** Up to MAX_SENTENCES sentences of `passage` that share the most words with `statement`, as {start, end} in code points; none if too few words are shared. */
export function closestSentences(statement, passage) {
  const statementWords = words(statement);
  const found = sentences(passage).map((each) => ({ ...each, words: words(each.text) }));
  const weight = new Map([...statementWords].map((word) => [word, 1 / Math.max(1, found.filter((each) => each.words.has(word)).length)]));
  const sum = (some) => [...some].reduce((total, word) => total + weight.get(word), 0);
  const enough = MIN_SHARE * sum(statementWords);
  const left = new Set(statementWords);
  const picked = [];
  while (picked.length < MAX_SENTENCES) {
    const gains = found.map((each) => sum([...left].filter((word) => each.words.has(word))));
    const best = gains.indexOf(Math.max(...gains));
    if (best < 0 || gains[best] === 0 || gains[best] < enough) break;
    picked.push(best);
    for (const word of found[best].words) left.delete(word);
  }
  return picked.sort((one, other) => one - other).map((place) => spanOf(found[place], passage));
}

/** The span of a sentence without the white space around it. */
function spanOf({ text, from }, passage) {
  const start = from + text.length - text.trimStart().length;
  const length = (piece) => Array.from(piece).length;
  const before = length(passage.slice(0, start));
  return { start: before, end: before + length(text.trim()) };
}

/** The words of `text`, each cut to PREFIX_LENGTH letters, so that most inflections do not matter. */
function words(text) {
  const plain = text.normalize("NFKC").toLowerCase();
  const found = byWord
    ? Array.from(byWord.segment(plain)).filter((each) => each.isWordLike).map((each) => each.segment)
    : plain.match(/[\p{L}\p{N}]+/gu) ?? [];
  return new Set(found.map((word) => Array.from(word).slice(0, PREFIX_LENGTH).join("")));
}
