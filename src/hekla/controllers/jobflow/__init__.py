"""JobFlows and JobTemplates: `flow` decides, `controller` applies, `probes` checks targets."""
