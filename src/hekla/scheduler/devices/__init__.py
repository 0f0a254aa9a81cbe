"""Cards of nodes (GPUs, NPUs) that pods share: what there is, who asks, who has which.

The published contracts of device plugins are kept here and nowhere else: `inventory` reads what
they say about nodes, `asks` what pods want and were given, `ledger` counts it all in arrays. None
of it knows whether sharing is switched on: that is the plugin's business (`plugins/deviceshare`),
so switching it on or off forgets nothing.
"""
