// Package sim runs a whole cluster, clients included, in virtual time under faults, and checks what its clients saw
// and what its stores hold. It has no exported names: its tests drive it.
//
// A plan (plan.go) says what clients do (load.go) and which faults happen beside them (fault_*.go), some of which
// kill stores (kill.go). Clients (caller.go) write down what they asked and were answered (history.go). Then the
// checkers look for evidence of a mistake (evidence.go):
//
//   - linearizable.go checks the history of each key against a model of what commands do (model.go, cells.go,
//     expiry.go).
//   - explain.go says of a history that is wrong whether a write was lost, a read was stale, or what else.
//   - replicas.go compares what the replicas of a region hold, while the plan runs and at its end.
//   - logs.go compares what the replicas of a region have taken from the log.
//   - floors.go says how much the runs of a plan must have done to prove anything.
//
// A seed fixes the faults and the operations, but not the interleaving of goroutines: equal seeds give nearly equal
// runs.
//
//	go test ./neokv/internal/sim -run 'TestVirtual$'                                a fixed batch of seeds
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seeds=1000 -timeout=2h    more of them, from -sim.first on
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=123 -v               one seed; -count=20 repeats it
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan='3 clients, reads 1, writes 1, kill stores'
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan=lease-promise -sim.planted -sim.seed=2 -v
//	go test ./neokv/internal/sim -run TestExplore -sim.explore=1h -timeout=2h -v    fresh seeds of all plans
package sim
