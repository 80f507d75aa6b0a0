"""Colours of plots: Okabe and Ito's, which the colour-blind can tell apart; fastformer has the strongest."""

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31", "#7F7F7F", "#000000")
OURS = "#D55E00"
