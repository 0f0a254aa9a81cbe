"""Print the manifest that hera generates for a resource step of Argo."""

from hera.workflows import Resource, Steps, Workflow

JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  generateName: from-hera-
spec:
  schedulerName: volcano
  minAvailable: 2
  tasks:
  - name: worker
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        containers: [{name: main, image: none}]
"""

with Workflow(
    generate_name="train-", entrypoint="steps", scheduler_name="volcano", namespace="default"
) as workflow:
    train = Resource(
        name="train",
        action="create",
        set_owner_reference=True,
        manifest=JOB,
        success_condition="status.state.phase = Completed",
        failure_condition="status.state.phase = Failed",
    )
    with Steps(name="steps"):
        train()

print(workflow.to_yaml())
