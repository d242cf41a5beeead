# frozen_string_literal: true

require 'socket'
require 'timeout'

# The part of HTTP/1.1 that the listeners need: GET, one request per connection, bodies of known length.
module Http
  Response = Struct.new(:status, :headers, :body)

  REASONS = { 200 => 'OK', 400 => 'Bad Request', 404 => 'Not Found', 405 => 'Method Not Allowed', 502 => 'Bad Gateway' }.freeze
  # Timeout of a request with its response. Longer than the timeouts of Backends, so that the client gets their error.
  SECONDS = 8
  LONGEST_LINE = 8192
  MOST_HEADERS = 100

  module_function

  def text(status, body, headers = {})
    Response.new(status, headers, "#{body}\n")
  end

  # Answers each request in a thread, with the block's response for its path. After a signal it accepts no more requests and
  # waits at most one second for each request in progress.
  def serve(listener)
    workers = ThreadGroup.new
    loop do
      client = listener.accept
      workers.add(Thread.new { answer(client) { |path| yield path } })
    end
  ensure
    listener.close
    workers.list.each { |worker| worker.join(1) }
  end

  def get(address, port, path)
    Timeout.timeout(SECONDS) do
      Socket.tcp(address, port, connect_timeout: 2) do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: #{address}:#{port}\r\nConnection: close\r\n\r\n")
        status = Integer(line(socket)[%r{\AHTTP/1\.\d (\d{3})}, 1] || raise(IOError, 'the response is not HTTP'))
        headers = read_headers(socket)
        body = socket.read(Integer(headers.fetch('content-length')))
        Response.new(status, headers, body.force_encoding(Encoding::UTF_8))
      end
    end
  end

  def answer(client)
    Timeout.timeout(SECONDS) do
      method, path, = line(client).split
      read_headers(client)
      write(client, method == 'GET' ? yield(path) : text(method ? 405 : 400, 'only GET is supported'))
    end
  rescue SystemCallError, IOError, Timeout::Error => e
    warn "#{Time.now} a request failed: #{e.message}"
  ensure
    client.close
  end

  def write(client, response)
    headers = { 'Content-Type' => 'text/plain; charset=utf-8' }.merge(response.headers)
    headers.update('Content-Length' => response.body.bytesize, 'Connection' => 'close')
    head = headers.map { |name, value| "#{name}: #{value}\r\n" }.join
    client.write("HTTP/1.1 #{response.status} #{REASONS.fetch(response.status, 'Unknown')}\r\n#{head}\r\n#{response.body}")
  end

  def line(socket)
    line = socket.gets("\n", LONGEST_LINE)
    raise EOFError, 'the other side closed the connection' unless line&.end_with?("\n")

    # Bytes: the client may send text in any encoding, or no text.
    line.b.chomp
  end

  def read_headers(socket)
    headers = {}
    until (text = line(socket)).empty?
      raise IOError, 'too many headers' if headers.size == MOST_HEADERS

      name, value = text.split(':', 2)
      headers[name.downcase] = value.to_s.strip
    end
    headers
  end
end
