"""Plans of tree ensembles: a library's file, to trees in a normal form, to an ONNX graph.

Only what a library predicts is kept, and that exactly: comparisons, missing values, categories, and
the order and precision of sums are those of the library that trained the model.
"""
