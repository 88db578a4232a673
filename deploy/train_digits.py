"""Train the `digits` demo model on scikit-learn's handwritten digits and write it as ONNX.

    python deploy/train_digits.py [MODEL.onnx]

The net reads pixels as the data set has them (0 to 16) and scales them inside the graph, so that a
client sends raw images. Every fourth image is held out. The run is the same on every machine:
full batches in float64 and, at the end, weights rounded to a grid far coarser than what the order
of additions in a BLAS can change.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Weights = list[Floats]  # hidden (64, 64), its bias (64,), output (64, 10), its bias (10,)

DEFAULT_PATH = Path(__file__).parent / "models" / "digits" / "1" / "model.onnx"
NUM_PIXELS, NUM_HIDDEN, NUM_CLASSES = 64, 64, 10
PIXEL_MAX = 16.0
NUM_STEPS = 300
LEARNING_RATE = 0.02  # falls to 0 along half a cosine
WEIGHT_DECAY = 1e-3
SEED = 0
# Coarse against what the order of additions changes (4e-15 between BLAS kernels), fine for a net.
WEIGHT_GRID = 2.0**-10


def split() -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return training pixels and labels, then held-out pixels and labels (rows 3, 7, 11, …)."""
    digits = load_digits()
    pixels, labels = digits.data.astype(np.float64), digits.target.astype(np.int64)
    held_out = np.arange(len(pixels)) % 4 == 3
    return pixels[~held_out], labels[~held_out], pixels[held_out], labels[held_out]


def with_shifted_copies(pixels: Floats) -> Floats:
    """Return the images and each of them shifted by one pixel in four directions, (5 n, 64)."""
    images = pixels.reshape(-1, 8, 8)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    offsets = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    shifted = [padded[:, row : row + 8, column : column + 8] for row, column in offsets]
    return np.concatenate(shifted).reshape(-1, NUM_PIXELS)


def hidden_layer(weights: Weights, inputs: Floats) -> Floats:
    """Return the activations of the hidden layer for scaled pixels, (n, 64)."""
    return np.maximum(inputs @ weights[0] + weights[1], 0.0)


def probabilities(weights: Weights, hidden: Floats) -> Floats:
    """Return the softmax over classes, (n, 10)."""
    scores = hidden @ weights[2] + weights[3]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def gradients(weights: Weights, inputs: Floats, targets: Floats) -> Weights:
    """Return the gradients of cross-entropy plus weight decay, in the order of the weights."""
    hidden = hidden_layer(weights, inputs)
    at_scores = (probabilities(weights, hidden) - targets) / len(inputs)
    at_hidden = (at_scores @ weights[2].T) * (hidden > 0)
    return [
        inputs.T @ at_hidden + WEIGHT_DECAY * weights[0],
        at_hidden.sum(axis=0),
        hidden.T @ at_scores + WEIGHT_DECAY * weights[2],
        at_scores.sum(axis=0),
    ]


def train(pixels: Floats, labels: NDArray[np.int64]) -> Weights:
    """Return the trained weights, rounded to the grid; Adam on full batches."""
    inputs = with_shifted_copies(pixels) / PIXEL_MAX
    targets = np.eye(NUM_CLASSES)[np.tile(labels, len(inputs) // len(labels))]
    # RandomState, since numpy promises that its stream never changes; Generator's may.
    random = np.random.RandomState(SEED)
    weights = [
        random.standard_normal((NUM_PIXELS, NUM_HIDDEN)) * np.sqrt(2 / NUM_PIXELS),
        np.zeros(NUM_HIDDEN),
        random.standard_normal((NUM_HIDDEN, NUM_CLASSES)) * np.sqrt(1 / NUM_HIDDEN),
        np.zeros(NUM_CLASSES),
    ]
    means = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    for step in range(1, NUM_STEPS + 1):
        rate = LEARNING_RATE * (0.5 + 0.5 * np.cos(np.pi * step / NUM_STEPS))
        for index, gradient in enumerate(gradients(weights, inputs, targets)):
            means[index] = 0.9 * means[index] + 0.1 * gradient
            squares[index] = 0.999 * squares[index] + 0.001 * gradient**2
            mean = means[index] / (1 - 0.9**step)
            square = squares[index] / (1 - 0.999**step)
            weights[index] = weights[index] - rate * mean / (np.sqrt(square) + 1e-8)
    return [np.round(weight / WEIGHT_GRID) * WEIGHT_GRID for weight in weights]


def to_onnx(weights: Weights) -> onnx.ModelProto:
    """Return the net as ONNX: input (n, 64) → probabilities (n, 10) and label (n, 1)."""
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    initializers = [
        numpy_helper.from_array(weight.astype(np.float32), name)
        for name, weight in zip(names, weights, strict=True)
    ]
    initializers.append(numpy_helper.from_array(np.array(1 / PIXEL_MAX, np.float32), "pixel_scale"))
    nodes = [
        helper.make_node("Mul", ["input", "pixel_scale"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", names[0], names[1]], ["before_relu"]),
        helper.make_node("Relu", ["before_relu"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", names[2], names[3]], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=1),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "digits",
        [value("input", TensorProto.FLOAT, ["batch", NUM_PIXELS])],
        [
            value("probabilities", TensorProto.FLOAT, ["batch", NUM_CLASSES]),
            value("label", TensorProto.INT64, ["batch", 1]),
        ],
        initializers,
        doc_string="Handwritten digits, 8 x 8 pixels from 0 to 16, row by row.",
    )
    opset = helper.make_operatorsetid("", 17)
    # IR 8 and opset 17 are read by every ONNX Runtime since 1.12 and by TensorRT 10.
    model = helper.make_model(
        graph, opset_imports=[opset], ir_version=8, producer_name="train_digits.py"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, say how well it went on the held-out images, and write the file."""
    parser = argparse.ArgumentParser(description="Train the digits model and write it as ONNX.")
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT_PATH, metavar="MODEL.onnx")
    path: Path = parser.parse_args().path
    pixels, labels, held_out_pixels, held_out_labels = split()
    weights = train(pixels, labels)
    hidden = hidden_layer(weights, held_out_pixels / PIXEL_MAX)
    correct = probabilities(weights, hidden).argmax(axis=1) == held_out_labels
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_onnx(weights).SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size} bytes, held-out accuracy {correct.mean():.4f}")


if __name__ == "__main__":
    main()
