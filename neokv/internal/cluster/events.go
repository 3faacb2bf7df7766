package cluster

// The kinds of events, which neokv.EventKind describes.
const (
	eventCluster  = "cluster"
	eventFault    = "fault"
	eventFailure  = "failure"
	eventLeader   = "leader"
	eventRegion   = "region"
	eventImpaired = "impaired"
	eventScript   = "script"
	eventClient   = "client"
)
