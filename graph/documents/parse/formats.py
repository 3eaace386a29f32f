"""Which endings are read, and by what. A new format is a line in READERS and a file of that name beside this one."""

PLAIN = (".txt", ".md", ".markdown", ".rst", ".adoc", ".tex")
"""Text that is kept as it stands."""
MARKDOWN = (".md", ".markdown")
TABLES = (".csv", ".tsv")
"""Text whose lines are rows of a table."""
LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".java": "java",
    ".kt": "kotlin",
    ".scala": "scala",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".hpp": "cpp",
    ".cs": "csharp",
    ".go": "go",
    ".rs": "rust",
    ".rb": "ruby",
    ".php": "php",
    ".swift": "swift",
    ".r": "r",
    ".jl": "julia",
    ".lua": "lua",
    ".pl": "perl",
    ".sh": "shell",
    ".ps1": "powershell",
    ".sql": "sql",
    ".vue": "vue",
    ".proto": "protobuf",
    ".tf": "terraform",
}
"""Source code, kept as it stands, and the `language` in its metadata."""
READERS = {
    ".html": "html_text",
    ".htm": "html_text",
    ".pdf": "pdf_text",
    ".docx": "docx_text",
    ".docm": "docx_text",
    ".pptx": "pptx_text",
    ".pptm": "pptx_text",
    ".xlsx": "xlsx_text",
    ".xlsm": "xlsx_text",
    ".epub": "epub_text",
    ".eml": "eml_text",
    ".ipynb": "ipynb_text",
}
"""Files that a process with limits reads: the module beside this one, and the function in it, that does."""
FRONT_MATTER = "front_matter"
"""What that process reads of a Markdown file that begins with metadata."""
SUFFIXES = (*PLAIN, *TABLES, *READERS, *LANGUAGES)
TOLD = ".txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .csv, .epub, .eml, .ipynb, source code"
"""The endings in short, for messages; docs/guide.md lists all."""
