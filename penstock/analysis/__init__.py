"""Analysis of many hosts' data by DuckDB or Spark, beyond one host's database; needs `penstock[analysis]`."""
