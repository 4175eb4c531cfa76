"""What is only looked at: runs with their output, files and reports, hosts, comparisons, figures for Prometheus."""
