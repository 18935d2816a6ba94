// Package clients holds GoVPP, unmodified, against the router: what agents written for VPP do.
package clients

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/adapter/statsclient"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"go.fd.io/govpp/binapi/fib_types"
)

const wait = 2 * time.Minute

// router starts a router with the sockets of the binary API and of the statistics in a folder of its own.
func router(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	words := fmt.Sprintf("unix { nodaemon runtime-dir %s } socksvr { default } statseg { default update-interval 0.1 }"+
		" buffers { buffers-per-numa 16384 page-size 4K }", folder)
	command := exec.Command(os.Getenv("QUIVER_BIN"), strings.Fields(words)...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("the router ended with %v", err)
		}
	})
	for _, name := range []string{"api.sock", "stats.sock"} {
		until(t, name+" is there", func() bool {
			_, err := os.Stat(filepath.Join(folder, name))
			return err == nil
		})
	}
	return folder
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", wait, what)
		}
	}
}

func connect(t *testing.T, folder string) *core.Connection {
	t.Helper()
	// As govpp.Connect does, but for the time: a router answers when it has started, on a machine that is busy.
	client := socketclient.NewVppClient(filepath.Join(folder, "api.sock"))
	client.SetConnectTimeout(wait)
	connection, err := core.Connect(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Disconnect)
	return connection
}

func cli(t *testing.T, connection *core.Connection, line string) string {
	t.Helper()
	reply, err := vlib.NewServiceClient(connection).CliInband(context.Background(), &vlib.CliInband{Cmd: line})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return reply.Reply
}

func dump(t *testing.T, connection *core.Connection) []*interfaces.SwInterfaceDetails {
	t.Helper()
	request := &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	stream, err := interfaces.NewServiceClient(connection).SwInterfaceDump(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	var all []*interfaces.SwInterfaceDetails
	for {
		details, err := stream.Recv()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, details)
	}
}

func prefix(t *testing.T, text string) ip_types.Prefix {
	t.Helper()
	parsed, err := ip_types.ParsePrefix(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestConnectAndList(t *testing.T) {
	connection := connect(t, router(t))
	version, err := vpe.NewServiceClient(connection).ShowVersion(context.Background(), &vpe.ShowVersion{})
	if err != nil || version.Program != "quiver" {
		t.Fatalf("%v, %v", version, err)
	}
	if all := dump(t, connection); len(all) != 1 || all[0].InterfaceName != "local0" {
		t.Fatalf("%v", all)
	}
	channel, err := connection.NewAPIChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer channel.Close()
	wanted := []api.Message{&memif.MemifCreate{}, &memif.MemifDump{}, &ip.IPRouteAddDel{}, &ip.IPRouteDump{},
		&interfaces.SwInterfaceSetFlags{}, &interfaces.SwInterfaceEvent{}, &interfaces.CreateLoopback{}}
	if err := channel.CheckCompatiblity(wanted...); err != nil {
		t.Fatal(err)
	}
}

func TestRefusalsAreErrors(t *testing.T) {
	connection := connect(t, router(t))
	request := &interfaces.SwInterfaceSetFlags{SwIfIndex: 99, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
	_, err := interfaces.NewServiceClient(connection).SwInterfaceSetFlags(context.Background(), request)
	if code, is := err.(api.VPPApiError); !is || code != api.INVALID_SW_IF_INDEX {
		t.Fatalf("%v", err)
	}
}

func TestEvents(t *testing.T) {
	folder := router(t)
	watching, working := connect(t, folder), connect(t, folder)
	watcher, err := watching.WatchEvent(context.Background(), (*interfaces.SwInterfaceEvent)(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	want := &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: uint32(os.Getpid())}
	if _, err := interfaces.NewServiceClient(watching).WantInterfaceEvents(context.Background(), want); err != nil {
		t.Fatal(err)
	}
	loop, err := interfaces.NewServiceClient(working).CreateLoopback(context.Background(), &interfaces.CreateLoopback{})
	if err != nil {
		t.Fatal(err)
	}
	up := &interfaces.SwInterfaceSetFlags{SwIfIndex: loop.SwIfIndex, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
	if _, err := interfaces.NewServiceClient(working).SwInterfaceSetFlags(context.Background(), up); err != nil {
		t.Fatal(err)
	}
	select {
	case message := <-watcher.Events():
		event := message.(*interfaces.SwInterfaceEvent)
		if event.SwIfIndex != loop.SwIfIndex || event.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0 {
			t.Fatalf("%+v", event)
		}
	case <-time.After(wait):
		t.Fatal("no event")
	}
}

func TestMemifRoutesAndStatistics(t *testing.T) {
	folders := []string{router(t), router(t)}
	path := filepath.Join(folders[0], "between.sock")
	var connections []*core.Connection
	var indices []interface_types.InterfaceIndex
	for role, folder := range folders {
		connection := connect(t, folder)
		connections = append(connections, connection)
		socket := &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 1, SocketFilename: path}
		if _, err := memif.NewServiceClient(connection).MemifSocketFilenameAddDelV2(context.Background(), socket); err != nil {
			t.Fatal(err)
		}
		create := &memif.MemifCreate{Role: memif.MemifRole(role), RxQueues: 1, TxQueues: 1, ID: 3, SocketID: 1, RingSize: 1024}
		made, err := memif.NewServiceClient(connection).MemifCreate(context.Background(), create)
		if err != nil {
			t.Fatal(err)
		}
		indices = append(indices, made.SwIfIndex)
		service := interfaces.NewServiceClient(connection)
		up := &interfaces.SwInterfaceSetFlags{SwIfIndex: made.SwIfIndex, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
		if _, err := service.SwInterfaceSetFlags(context.Background(), up); err != nil {
			t.Fatal(err)
		}
		address := &interfaces.SwInterfaceAddDelAddress{SwIfIndex: made.SwIfIndex, IsAdd: true,
			Prefix: ip_types.AddressWithPrefix(prefix(t, fmt.Sprintf("10.7.0.%d/24", role+1)))}
		if _, err := service.SwInterfaceAddDelAddress(context.Background(), address); err != nil {
			t.Fatal(err)
		}
	}
	for at, connection := range connections {
		until(t, "the link is up", func() bool {
			for _, details := range dump(t, connection) {
				if details.SwIfIndex == indices[at] {
					return details.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
				}
			}
			return false
		})
	}
	cli(t, connections[1], "create loopback interface")
	cli(t, connections[1], "set interface state loop0 up")
	cli(t, connections[1], "set interface ip address loop0 10.8.0.1/32")
	hop, err := ip_types.ParseIP4Address("10.7.0.2")
	if err != nil {
		t.Fatal(err)
	}
	way := fib_types.FibPath{SwIfIndex: uint32(indices[0]), Weight: 1,
		Nh: fib_types.FibPathNh{Address: ip_types.AddressUnionIP4(hop)}}
	route := &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: prefix(t, "10.8.0.0/24"), NPaths: 1, Paths: []fib_types.FibPath{way}}}
	if _, err := ip.NewServiceClient(connections[0]).IPRouteAddDel(context.Background(), route); err != nil {
		t.Fatal(err)
	}
	// The last answer may take an interval. One goes first, for which the neighbour is asked: only four packets may wait.
	for _, burst := range []string{"1", "4"} {
		text := cli(t, connections[0], "ping 10.8.0.1 repeat 1 interval 60 burst "+burst)
		if !strings.Contains(text, burst+" sent, "+burst+" received") {
			t.Fatal(text)
		}
	}
	statistics(t, folders[0], uint32(indices[0]))
}

func statistics(t *testing.T, folder string, index uint32) {
	t.Helper()
	connection, err := core.ConnectStats(statsclient.NewStatsClient(filepath.Join(folder, "stats.sock")))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Disconnect()
	var of api.InterfaceStats
	if err := connection.GetInterfaceStats(&of); err != nil {
		t.Fatal(err)
	}
	for _, counters := range of.Interfaces {
		if counters.InterfaceIndex == index {
			if counters.InterfaceName != "memif1/3" || counters.Rx.Packets < 5 || counters.Tx.Packets < 5 {
				t.Fatalf("%+v", counters)
			}
			var system api.SystemStats
			until(t, "its heart beats", func() bool {
				return connection.GetSystemStats(&system) == nil && system.Heartbeat > 0
			})
			return
		}
	}
	t.Fatalf("%+v", of.Interfaces)
}
