"""Writes a file so that it appears either complete or not at all."""

import os
import threading


def write(path, text):
    partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.partial")
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)
