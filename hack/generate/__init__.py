"""Generated files: models of built-in types, CRDs, the chart, dashboards, Argo CD's part, docs, examples."""
