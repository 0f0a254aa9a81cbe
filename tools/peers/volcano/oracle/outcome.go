package main

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/apis/pkg/apis/scheduling"
	nodeshardv1alpha1 "volcano.sh/apis/pkg/apis/shard/v1alpha1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// outcome is one line of output. Pods and PodGroups are named NAMESPACE/NAME.
type outcome struct {
	Error string `json:"error,omitempty"`
	// Binds are the pods with the node that each is bound to.
	Binds map[string]string `json:"binds"`
	// Evictions are the pods that are evicted.
	Evictions []string `json:"evictions"`
	// Pipelined are the pods that wait for resources of a node to be released.
	Pipelined map[string]string `json:"pipelined"`
	// Nominated are the pods whose status.nominatedNodeName is written.
	Nominated map[string]string `json:"nominated"`
	// Groups are the PodGroups with their status after the session.
	Groups map[string]scheduling.PodGroupStatus `json:"groups"`
}

// readSession reads what the session decided and has not closed over yet.
func readSession(found *outcome, session *framework.Session) {
	found.Pipelined = map[string]string{}
	for _, job := range session.Jobs {
		for _, task := range job.TaskStatusIndex[api.Pipelined] {
			found.Pipelined[task.Namespace+"/"+task.Name] = task.NodeName
		}
	}
}

// readCache reads what the session sent to the cache: bindings wait in the channel, victims are
// marked as releasing.
func readCache(found *outcome, scheduler *cache.SchedulerCache) {
	found.Binds = map[string]string{}
	for len(scheduler.BindFlowChannel) > 0 {
		task := (<-scheduler.BindFlowChannel).TaskInfo
		found.Binds[task.Namespace+"/"+task.Name] = task.NodeName
	}
	found.Evictions = []string{}
	for _, job := range scheduler.Jobs {
		for _, task := range job.TaskStatusIndex[api.Releasing] {
			if task.Pod.DeletionTimestamp == nil {
				found.Evictions = append(found.Evictions, task.Namespace+"/"+task.Name)
			}
		}
	}
}

// written takes the status writes of a session instead of an API server.
type written struct {
	lock      sync.Mutex
	groups    map[string]scheduling.PodGroupStatus
	nominated map[string]string
}

func (w *written) reset() {
	w.groups = map[string]scheduling.PodGroupStatus{}
	w.nominated = map[string]string{}
}

func (w *written) UpdatePodStatus(pod *corev1.Pod) (*corev1.Pod, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if name := pod.Status.NominatedNodeName; name != "" {
		w.nominated[pod.Namespace+"/"+pod.Name] = name
	}
	return pod, nil
}

func (w *written) UpdatePodGroup(group *api.PodGroup) (*api.PodGroup, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.groups[group.Namespace+"/"+group.Name] = group.Status
	return group, nil
}

func (w *written) UpdateQueueStatus(*api.QueueInfo) error { return nil }

func (w *written) UpdateNodeShardStatus(
	shard *nodeshardv1alpha1.NodeShard,
) (*nodeshardv1alpha1.NodeShard, error) {
	return shard, nil
}

// unsent drops evictions: they are read from the cache.
type unsent struct{}

func (unsent) Evict(*corev1.Pod, string) error { return nil }
