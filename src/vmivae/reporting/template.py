"""What every page of ours is made with: one head, one style, figures inside the file, all text escaped."""

from __future__ import annotations

import base64
from pathlib import Path

import jinja2
from markupsafe import Markup

from vmivae.reporting.style import Picture


def page(room: str, template: str, title: str, **content: object) -> str:
    """A self-contained HTML page as text; everything in `content` is escaped.

    Args:
        room: sub-package of `vmivae` that has the template.
        template: its file name; it includes head.html of `reporting`, and has the filter `uri` for pictures.
        title: of the page.
        content: what else the template names.
    """
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("vmivae", name) for name in (room, "reporting")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["uri"] = _data_uri
    style = Markup((Path(__file__).parent / "style.css").read_text("utf-8"))
    return environment.get_template(template).render(style=style, title=title, **content)


def _data_uri(picture: Picture) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(picture.png).decode('ascii')}")
