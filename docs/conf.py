"""How the documentation is built: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
sys.path.insert(0, str(HERE.parent))
os.environ.setdefault("MPLBACKEND", "agg")

import bregnet  # noqa: E402

project = "bregnet"
author = "the bregnet developers"
copyright = "the bregnet developers, MIT license"
version = release = bregnet.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "matplotlib.sphinxext.plot_directive",
    "mathml",
    "command_line",
    "own_members",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.py.md5"]
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["bregnet.css"]
today_fmt = ""

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the gallery's configuration holds a function

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say what the arguments are
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"bregnet {version}"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "bregnet"},
    "navbar_align": "left",
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {"index": []}

plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = ["svg"]
plot_basedir = str(HERE / "pictures")

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(demo|vector_store|readme_picture)\.py|__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/uses",
    "doc_module": ("bregnet",),
    "abort_on_example_error": True,
    "run_stale_examples": True,  # a change of the library may change what they show
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1000,
    "write_computation_times": False,
}
