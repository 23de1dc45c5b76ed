//go:build !kubernetes_1_36

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kubernetes/pkg/scheduler"
)

// A scriptClock is the time of a script: that of a bubble of testing/synctest, which stands still while
// anything happens, and passes at once when all wait.
type scriptClock struct{}

func inScriptTime(t *testing.T, f func(scriptClock)) {
	synctest.Test(t, func(*testing.T) {
		scriptClock{}.sleepUntil(start)
		f(scriptClock{})
		time.Sleep(time.Minute) // some goroutines look once a second whether they should end
	})
}

func (scriptClock) options() []scheduler.Option { return nil }

func (scriptClock) sleepUntil(end time.Time) { time.Sleep(time.Until(end)) }

func (scriptClock) soon(f func()) { time.AfterFunc(time.Microsecond, f) }

// settle waits until everything has come to rest.
func (scriptClock) settle(p *player, _ *entity) {
	for synctest.Wait(); p.world.deliver(); synctest.Wait() {
	}
}
