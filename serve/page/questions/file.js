// Questions files: one JSON object per line, as `modegraph tune --questions` and `modegraph eval` read them.

const isTexts = (value) => Array.isArray(value) && value.every((each) => typeof each === "string");
const isQuote = (value) => typeof value?.id === "string" && typeof value?.quote === "string";

/** The rows as the text of a file. */
export const toLines = (rows) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

/** The rows of a file's text; throws an Error that names the first unusable line and the reason, or states that the file contains no questions. */
export function fromLines(text) {
  const rows = [];
  const ids = new Set();
  for (const [place, line] of text.replace(/^\uFEFF/, "").split(/\r?\n/).entries()) {
    if (!line.trim()) continue;
    const row = parseRow(line, place + 1);
    const problem = problemOf(row) || (ids.has(row.id) ? `the id ${row.id} is also on a line above` : "");
    if (problem) throw new Error(`Line ${place + 1}: ${problem}.`);
    ids.add(row.id);
    rows.push(row);
  }
  if (!rows.length) throw new Error("The file contains no questions: it needs one JSON object per line.");
  return rows;
}

function parseRow(line, number) {
  let row;
  try {
    row = JSON.parse(line);
  } catch {
    throw new Error(`Line ${number}: not JSON. A questions file contains one JSON object per line.`);
  }
  const { answer, ...rest } = row ?? {};
  const answers = rest.answers ?? (answer === undefined ? [] : [answer]);
  return { ...rest, answers: isTexts(answers) ? answers.filter((each) => each.trim()) : answers };
}

function problemOf(row) {
  for (const name of ["id", "question"]) {
    if (typeof row[name] !== "string" || !row[name].trim()) return `${name} is missing, empty or not a string`;
  }
  for (const name of ["answers", "gold_ids"]) {
    if (row[name] !== undefined && !isTexts(row[name])) return `${name} is not a list of strings`;
  }
  const { evidence = [] } = row;
  return Array.isArray(evidence) && evidence.every(isQuote) ? "" : 'evidence is not a list of objects {"id": document, "quote": sentence}';
}
