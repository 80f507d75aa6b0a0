"""News recommendation: who clicks what, from titles and click histories."""
