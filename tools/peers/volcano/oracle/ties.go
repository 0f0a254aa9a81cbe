package main

import (
	"sort"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

const (
	tiesName = "oracle-ties"
	// Far below every difference of scores, and far above the rounding errors of their sums.
	tieStep = 1e-7
)

// ties is a plugin that adds almost nothing to the score of each node, in the order of names. So
// equal scores are decided by name and not by chance.
type ties struct {
	last bool
}

func newTies(arguments framework.Arguments) framework.Plugin {
	return &ties{last: arguments["which"] == "last"}
}

func (t *ties) Name() string { return tiesName }

func (t *ties) OnSessionOpen(session *framework.Session) {
	names := make([]string, 0, len(session.Nodes))
	for name := range session.Nodes {
		names = append(names, name)
	}
	sort.Strings(names)
	scores := make(map[string]float64, len(names))
	for rank, name := range names {
		if !t.last {
			rank = len(names) - rank
		}
		scores[name] = float64(rank) * tieStep
	}
	session.AddNodeOrderFn(tiesName, func(_ *api.TaskInfo, node *api.NodeInfo) (float64, error) {
		return scores[node.Name], nil
	})
}

func (t *ties) OnSessionClose(*framework.Session) {}

// withTies returns the tiers with this plugin at the end; unchanged if ties are left to chance.
func withTies(tiers []conf.Tier, which string) []conf.Tier {
	if which == "" {
		return tiers
	}
	enabled := true
	option := conf.PluginOption{
		Name:             tiesName,
		EnabledNodeOrder: &enabled,
		Arguments:        map[string]interface{}{"which": which},
	}
	return append(tiers[:len(tiers):len(tiers)], conf.Tier{Plugins: []conf.PluginOption{option}})
}
