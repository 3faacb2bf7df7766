// Package sim runs a whole cluster, clients included, in virtual time under faults, and checks what its clients saw
// and what its stores hold. Its tests and neokv torture (torture.go, by way of package torture) drive it: batch.go runs
// seeds in child processes (child.go), and shrink.go makes a scenario that fails smaller.
//
// A plan (plan.go) says what clients do (load.go), and which faults happen to the cluster in a schedule (schedule.go),
// which the seed may draw (draw.go). The cluster carries them out (inject.go). What follows the state of the run stands
// in fault_*.go. Clients (caller.go) write down what they asked and were answered (history.go). Then the checkers look
// for evidence of a mistake (evidence.go):
//
//   - linearizable.go checks the history of each key against a model of what commands do (model.go, cells.go,
//     expiry.go).
//   - messages.go has publishers and subscribers, and checks what the subscribers get.
//   - caching.go has clients that cache what they read, and compares that with what was acknowledged.
//   - chat.go has the clients of a chat at work, whose records have several keys each, and checks these.
//   - explain.go says of a history that is wrong whether a write was lost, a read was stale, or what else.
//   - replicas.go compares what the replicas of a region hold, while the plan runs and at its end.
//   - logs.go compares what the replicas of a region have taken from the log.
//   - bounds.go checks the bounds of regions, which split and merge, while the plan runs and at its end.
//   - backups.go has backups made, starts clusters from them, and checks what these hold.
//   - liveness.go checks that all regions take writes soon after faults have ended.
//   - floors.go says how much the runs of a plan must have done to prove anything, states.go which states a sweep
//     of torture must have reached.
//
// A seed fixes the faults and the operations, but not the interleaving of goroutines: equal seeds give nearly equal
// runs.
//
//	go test ./neokv/internal/sim -run 'TestVirtual$'                                a fixed batch of seeds
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seeds=1000 -timeout=2h    more of them, from -sim.first on
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=123 -v               one seed; -count=20 repeats it
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan='3 clients, reads 1, writes 1, draws kill every 1s'
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan=lease-promise -sim.planted -sim.seed=2 -v
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan=torture -sim.seed=7  a seed of neokv torture
//	go test ./neokv/internal/sim -run TestPowerCuts -sim.cuts=2000 -v               power cuts of all stores, counted
//	go test ./neokv/internal/sim -run TestKillNine -process.kills=100 -v            kills of a real process
//	go test ./neokv/internal/sim -run TestPausedProcess -process.pauses=100 -v      a real process stops and goes on
//	go test ./neokv/internal/sim -run TestExplore -sim.explore=1h -timeout=2h -v    fresh seeds of all plans
package sim
