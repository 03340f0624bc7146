"""The names that results are filed under, in the order of every table."""

PAPER_DATASETS = ("amazon_esci", "mslr_web10k", "alloprof_rerank", "esci_rerank_us", "wands", "scidocs")
BOOSTED = "mslr_web10k_boosted"  # the same judgements under a LightGBM base: the paper's robustness check

PAPER_CALIBRATORS = ("uncal", "ts", "diag", "spline", "hcal", "smart")
HEADLINE_CALIBRATOR = "smart"  # under which the paper draws its curves
RIVAL_CALIBRATORS = ("vector", "matrix")  # class-wise: they can remove a label-wise residual themselves

PAPER_VARIANTS = ("confidence", "shared_1d", "label_intercept", "label_isotonic", "mrp", "label_2d")
VARIANTS = ("confidence", "shared_1d", "label_intercept", "label_isotonic", "label_platt", "mrp", "label_2d")
COMPARED = ("nll_correct", "aupr_error", "aurc")  # the metrics of the main table
AVERAGE = "average"  # over the paper's six calibrators, or over its six data sets
EXACT = "mrp_exact"  # the convex optimum of `mrp`, outside the paper's tables
SIMPLEX = "mrc"  # MRP's reliability as the top of a probability vector
