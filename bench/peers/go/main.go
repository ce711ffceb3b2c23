// go-mysql's replication package reads the log; rows are decoded, JSON becomes text.
// Arguments: host port user password file position database tail-table.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

func main() {
	port, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err != nil {
		fail(err)
	}
	position, err := strconv.ParseUint(os.Args[6], 10, 32)
	if err != nil {
		fail(err)
	}
	database, tail := os.Args[7], os.Args[8]
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 94004, Flavor: "mysql", Host: os.Args[1], Port: uint16(port), User: os.Args[3], Password: os.Args[4],
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	streamer, err := syncer.StartSync(mysql.Position{Name: os.Args[5], Pos: uint32(position)})
	if err != nil {
		fail(err)
	}
	var inserts, updates, deletes int
	var began time.Time
	var cpuBegan float64
	for {
		event, err := streamer.GetEvent(context.Background())
		if err != nil {
			fail(err)
		}
		rows, ok := event.Event.(*replication.RowsEvent)
		if !ok {
			continue
		}
		if string(rows.Table.Schema) != database {
			continue
		}
		if string(rows.Table.Table) == tail {
			break
		}
		if began.IsZero() {
			began, cpuBegan = time.Now(), cpuSeconds()
		}
		switch rows.Type() {
		case replication.EnumRowsEventTypeInsert:
			inserts += len(rows.Rows)
		case replication.EnumRowsEventTypeUpdate:
			updates += len(rows.Rows) / 2
		case replication.EnumRowsEventTypeDelete:
			deletes += len(rows.Rows)
		}
	}
	fmt.Printf("{\"changes\": %d, \"wall_s\": %.4f, \"cpu_s\": %.4f, "+
		"\"counts\": {\"inserts\": %d, \"updates\": %d, \"deletes\": %d}}\n",
		inserts+updates+deletes, time.Since(began).Seconds(), cpuSeconds()-cpuBegan, inserts, updates, deletes)
}
