"""The pages and REST: what stands between HTTP and the operations. The only part of leadline that imports web packages."""
