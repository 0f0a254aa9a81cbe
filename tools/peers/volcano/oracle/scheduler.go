package main

import (
	"fmt"
	"sort"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"volcano.sh/volcano/cmd/scheduler/app/options"
	volcano "volcano.sh/volcano/pkg/scheduler"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/actions/shuffle"
	"volcano.sh/volcano/pkg/scheduler/api"
	vccache "volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/metrics"
	_ "volcano.sh/volcano/pkg/scheduler/plugins"
)

const schedulerName = "volcano"

// scheduler is Volcano's scheduler around one cache, which is emptied before each world.
type scheduler struct {
	cache   *vccache.SchedulerCache
	written *written
}

func newScheduler() *scheduler {
	metrics.InitKubeSchedulerRelatedMetrics()
	framework.RegisterPluginBuilder(tiesName, newTies)
	writes := &written{}
	made := vccache.NewCustomMockSchedulerCache(
		schedulerName, nil, unsent{}, writes, nil, &record.FakeRecorder{},
	)
	options.ServerOpts.PercentageOfNodesToFind = 100
	return &scheduler{cache: made, written: writes}
}

// decide runs one session on the world.
func (s *scheduler) decide(given *world) (outcome, error) {
	registerActions()
	actions, tiers, configurations, _, err := volcano.UnmarshalSchedulerConf(given.Conf)
	if err != nil {
		return outcome{}, fmt.Errorf("cannot read the scheduler configuration: %w", err)
	}
	conf.EnabledActionMap = make(map[string]bool, len(actions))
	for _, action := range actions {
		conf.EnabledActionMap[action.Name()] = true
	}
	if err := s.fill(given); err != nil {
		return outcome{}, err
	}
	session := framework.OpenSession(s.cache, withTies(tiers, given.Ties), configurations)
	for _, action := range actions {
		action.Execute(session)
	}
	found := outcome{}
	readSession(&found, session)
	framework.CloseSession(session)
	readCache(&found, s.cache)
	sort.Strings(found.Evictions)
	found.Groups, found.Nominated = s.written.groups, s.written.nominated
	for _, group := range given.PodGroups { // unchanged ones are not written
		key := group.Namespace + "/" + group.Name
		if _, ok := found.Groups[key]; !ok {
			if job := s.cache.Jobs[api.JobID(key)]; job != nil && job.PodGroup != nil {
				found.Groups[key] = job.PodGroup.Status
			}
		}
	}
	return found, nil
}

// registerActions replaces the actions: an action keeps arguments that a later configuration does
// not state.
func registerActions() {
	framework.RegisterAction(enqueue.New())
	framework.RegisterAction(allocate.New())
	framework.RegisterAction(backfill.New())
	framework.RegisterAction(preempt.New())
	framework.RegisterAction(reclaim.New())
	framework.RegisterAction(shuffle.New())
}

// fill replaces the content of the cache. The informers are never started: their stores are
// filled, and their handlers called, here.
func (s *scheduler) fill(given *world) error {
	s.clear()
	factory := s.cache.SharedInformerFactory()
	nodes := factory.Core().V1().Nodes().Informer().GetIndexer()
	s.cache.HyperNodesInfo = api.NewHyperNodesInfo(factory.Core().V1().Nodes().Lister())
	if err := replace(nodes, given.Nodes); err != nil {
		return err
	}
	budgets := factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer()
	if err := replace(budgets, given.Budgets); err != nil {
		return err
	}
	namespaces := factory.Core().V1().Namespaces().Informer().GetIndexer()
	if err := replace(namespaces, given.Namespaces); err != nil {
		return err
	}
	pods := factory.Core().V1().Pods().Informer().GetIndexer()
	if err := replace(pods, given.Pods); err != nil {
		return err
	}
	for _, class := range given.PriorityClasses {
		s.cache.AddPriorityClass(class)
	}
	for _, node := range given.Nodes {
		if err := s.cache.AddOrUpdateNode(node); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	for _, hyperNode := range given.HyperNodes {
		if err := s.cache.HyperNodesInfo.UpdateHyperNode(hyperNode); err != nil {
			return fmt.Errorf("HyperNode %s: %w", hyperNode.Name, err)
		}
	}
	for _, queue := range given.Queues {
		s.cache.AddQueueV1beta1(queue)
	}
	for _, quota := range given.Quotas {
		s.cache.AddResourceQuota(quota)
	}
	for _, group := range given.PodGroups {
		s.cache.AddPodGroupV1beta1(group)
	}
	for _, pod := range given.Pods {
		if pod.Spec.SchedulerName == schedulerName || pod.Spec.NodeName != "" {
			s.cache.AddPod(pod)
		}
	}
	return nil
}

func (s *scheduler) clear() {
	s.written.reset()
	for len(s.cache.BindFlowChannel) > 0 {
		<-s.cache.BindFlowChannel
	}
	s.cache.Jobs = map[api.JobID]*api.JobInfo{}
	for name := range s.cache.Nodes {
		_ = s.cache.RemoveNode(name) // also removes its images
	}
	s.cache.Nodes = map[string]*api.NodeInfo{}
	s.cache.NodeList = nil
	s.cache.Queues = map[api.QueueID]*api.QueueInfo{}
	for _, class := range s.cache.PriorityClasses {
		s.cache.DeletePriorityClass(class) // also resets the default priority
	}
	s.cache.PriorityClasses = map[string]*schedulingv1.PriorityClass{}
	s.cache.NamespaceCollection = map[string]*api.NamespaceCollection{}
	s.cache.CSINodesStatus = map[string]*api.CSINodeStatusInfo{}
}

func replace[T any](store cache.Indexer, objects []T) error {
	list := make([]interface{}, len(objects))
	for index, object := range objects {
		list[index] = object
	}
	return store.Replace(list, "")
}
