"""Charts in SVG and plots."""
