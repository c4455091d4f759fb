"""An example of a network of one's own: plain Keras, nothing of this suite.

`build` gets the shape of an image and the number of classes, and returns a functional or Sequential
model: float32 images in [0, 1] in, logits out. docs/own-network.md describes what happens to it.
"""

from tensorflow import keras


def build(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Three convolutions and a dense layer, for images from 8 x 8 to 32 x 32 pixels."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape),
            *_convolution(32),
            *_convolution(64),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            *_convolution(128),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(classes, name="logits"),
        ],
        name="small",
    )


def _convolution(filters: int) -> list[keras.layers.Layer]:
    """The normalisation adds an offset of its own, so the convolution has none."""
    return [
        keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.ReLU(),
    ]
