// Go's net/http. The arguments are in `programs.rs`.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const failuresMax = 5

var requests, generations int
var upstream string

// What a case has to send, and what has come back.
type testCase struct {
	name, operation, version string
	sent, failed, goaway     int
	peers, generations       map[string]bool
	lock                     sync.Mutex
}

func (c *testCase) goesOn() bool {
	wanted := requests
	if c.operation == "post" || c.operation == "chunked" {
		wanted /= 8
	}
	isDone := c.sent >= wanted && len(c.generations) >= generations
	return !isDone && c.failed < failuresMax
}

func (c *testCase) ask(client *http.Client, base string, number int) error {
	path := fmt.Sprintf("/%s/%d", c.operation, number)
	method, framing, sent := "GET", "empty", []byte(nil)
	var body io.Reader
	switch c.operation {
	case "post":
		method, framing = "POST", "length=1048576"
		sent = bytes.Repeat([]byte(fmt.Sprintf("%016d", number)), 65536)
		body = bytes.NewReader(sent)
	case "chunked":
		method, framing = "POST", "stream"
		sent = bytes.Repeat([]byte(fmt.Sprintf("%016d", number)), 16384)
		// Its type does not tell the length.
		body = io.MultiReader(bytes.NewReader(sent))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return err
	}
	request.Close = c.operation == "fresh"
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != 200 || response.Proto != c.version {
		return fmt.Errorf("%s %s", response.Status, response.Proto)
	}
	return c.check(received, sent, method, path, framing)
}

func (c *testCase) check(received, sent []byte, method, path, framing string) error {
	version := c.version
	if upstream != "-" {
		version = upstream
	}
	line, rest, _ := bytes.Cut(received, []byte("\n"))
	words := strings.Split(string(line), " ")
	if len(words) != 6 || strings.Join(words[:4], " ") != strings.Join([]string{method, path, framing, version}, " ") {
		return fmt.Errorf("the line is %q", line)
	}
	if !bytes.Equal(rest, sent) {
		return fmt.Errorf("%d other bytes", len(rest))
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.generations[words[4]] = true
	c.peers[words[5]] = true
	return nil
}

func (c *testCase) run(client *http.Client, base string, parallel int) {
	for c.goesOn() {
		var group sync.WaitGroup
		for range parallel {
			c.sent++
			number := c.sent
			group.Add(1)
			go func() {
				defer group.Done()
				if err := c.ask(client, base, number); err != nil {
					c.lock.Lock()
					defer c.lock.Unlock()
					// GOAWAY came before the request was sent. It is sent on another connection,
					// unless its body has no GetBody.
					if strings.Contains(err.Error(), "cannot rewind body") {
						c.goaway++
						return
					}
					c.failed++
					fmt.Fprintf(os.Stderr, "%s %s %d: %v\n", c.name, c.operation, number, err)
				}
			}()
		}
		group.Wait()
	}
	line, _ := json.Marshal(map[string]any{
		"case": c.name + " " + c.operation, "requests": c.sent, "failed": c.failed,
		"connections": len(c.peers), "generations": len(c.generations), "goaway": c.goaway,
	})
	fmt.Println(string(line))
}

func main() {
	ca, err := os.ReadFile(os.Args[3])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	upstream = os.Args[4]
	requests, _ = strconv.Atoi(os.Args[5])
	generations, _ = strconv.Atoi(os.Args[6])
	for _, kind := range []string{"http", "https", "h2c", "h2"} {
		base, version, parallel := os.Args[1], "HTTP/1.1", 1
		if kind == "https" || kind == "h2" {
			base = os.Args[2]
		}
		operations := []string{"get", "post", "chunked", "fresh"}
		protocols := new(http.Protocols)
		switch kind {
		case "h2":
			protocols.SetHTTP2(true)
		case "h2c":
			protocols.SetUnencryptedHTTP2(true)
		default:
			protocols.SetHTTP1(true)
		}
		if strings.HasPrefix(kind, "h2") {
			version, parallel, operations = "HTTP/2.0", 4, operations[:3]
		}
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots},
			Protocols:       protocols,
		}}
		for _, operation := range operations {
			c := &testCase{name: kind, operation: operation, version: version}
			c.peers, c.generations = map[string]bool{}, map[string]bool{}
			c.run(client, base, parallel)
		}
	}
}
