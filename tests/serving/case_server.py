"""The API server on the scripted core, with the tokenizer of the public cases; see :mod:`tests.serving.server`."""

from __future__ import annotations

from tests.live.case_model import Pieces
from tests.serving import scripted_core, server


def install(engine: str) -> None:
    from engine_overlay.verify.cases import load
    from engine_overlay.verify.tokens import DEFAULT_SPECIAL

    scripted_core.EOS = Pieces(load()).id_of(DEFAULT_SPECIAL[-1])
    scripted_core.install(engine)


if __name__ == "__main__":
    server.main(install)
