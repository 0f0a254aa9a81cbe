package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	vcv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	topologyv1alpha1 "volcano.sh/apis/pkg/apis/topology/v1alpha1"
)

// world is one line of input: the objects as an API server would return them.
type world struct {
	// Conf is the text of a scheduler configuration.
	Conf string `json:"conf"`
	// Ties is "first" or "last" to choose among equally good nodes by name; else by chance.
	Ties string `json:"ties"`

	Nodes           []*corev1.Node                  `json:"nodes"`
	Queues          []*vcv1beta1.Queue              `json:"queues"`
	PriorityClasses []*schedulingv1.PriorityClass   `json:"priorityClasses"`
	PodGroups       []*vcv1beta1.PodGroup           `json:"podGroups"`
	Pods            []*corev1.Pod                   `json:"pods"`
	Budgets         []*policyv1.PodDisruptionBudget `json:"budgets"`
	Quotas          []*corev1.ResourceQuota         `json:"quotas"`
	Namespaces      []*corev1.Namespace             `json:"namespaces"`
	HyperNodes      []*topologyv1alpha1.HyperNode   `json:"hyperNodes"`
}

func readWorld(line []byte) (*world, error) {
	found := &world{}
	if err := json.Unmarshal(line, found); err != nil {
		return nil, fmt.Errorf("cannot read the world: %w", err)
	}
	if found.Conf == "" {
		return nil, fmt.Errorf("the world has no scheduler configuration: set conf")
	}
	return found, nil
}
