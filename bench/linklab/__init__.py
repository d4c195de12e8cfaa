"""A laboratory of slow links on one machine: network namespaces, veth pairs and token buckets."""
