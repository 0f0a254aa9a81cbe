"""CronJobs: `schedule` decides, `controller` applies."""
