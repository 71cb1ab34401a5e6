"""Knows the faces that the lab has, by operation: what is proved in the demo, in this order."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.trial.faces import delivery, download, upload
from penstock.trial.faces.face import Face

FACES: Mapping[str, Face] = {face.row.name: face for face in (upload.FACE, download.FACE, delivery.FACE)}
