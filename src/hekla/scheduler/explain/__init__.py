"""Why a job is pending: verdicts of actions, and the status written to PodGroups and pods."""
