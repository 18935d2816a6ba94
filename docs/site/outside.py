"""What the site needs beyond Markdown. Links that leave the guide lead to pages that the site has not: they become plain text."""

import re
from pathlib import Path
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)]*)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called for each page before it becomes HTML."""
    folder = Path(page.file.abs_src_path).parent
    docs = Path(config["docs_dir"]).resolve()

    def inside_or_plain(match: re.Match[str]) -> str:
        target = (folder / match[2].partition("#")[0]).resolve()
        is_page = target.is_relative_to(docs) and not target.is_relative_to(docs / "try")
        return match[0] if is_page else match[1]

    return OUTSIDE.sub(inside_or_plain, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """In a table's code the bar has to be escaped, and this Markdown shows the escape."""
    return html.replace("\\|", "|")
