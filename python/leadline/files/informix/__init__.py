"""Evidence of Informix: what its own tools print, and its pages (crates/page/src/informix.rs).

onstat.py and oncheck.py read text, line by line; capture.py makes tables of it; views/sections/informix.py asks who waited for what.
"""
