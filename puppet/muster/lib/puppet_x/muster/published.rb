# frozen_string_literal: true

require 'json'
require_relative 'run_file'

module PuppetX
  module Muster
    # Values that this node publishes: one JSON object {key, value} per line. The agent sends them with its report.
    module Published
      VARIABLE = 'MUSTER_PUBLISH_FILE'
      # Limit of the whole map as JSON. Every node that looks it up receives all of it, so it must stay small.
      LIMIT = 4096

      module_function

      def add(key, value)
        check(key, value)
        @published ||= {}
        published = (@published[RunFile.path(VARIABLE)] ||= {})
        if published.key?(key)
          return if published[key] == value

          refuse(key, "this run has published #{short(published[key])} under it already, and now #{short(value)}")
        end
        measure(key, value, published)
        RunFile.append_line(VARIABLE, JSON.generate({ key: key, value: value }))
        published[key] = value
      end

      def measure(key, value, published)
        total = JSON.generate(published.merge(key => value)).bytesize
        return if total <= LIMIT

        refuse(key, "its value has #{JSON.generate(value).bytesize} bytes, and with it this node would publish #{total} " \
                    "bytes; a node may publish #{LIMIT}")
      end

      # Other nodes read published values, so they must be plain data without secrets.
      def check(key, value)
        case value
        when Puppet::Pops::Types::PSensitiveType::Sensitive
          refuse(key, 'a Sensitive value is never published: every node of the environment can read it')
        when Hash
          value.each do |name, item|
            refuse(key, "#{name.inspect} is no text, and only text can name a value in a hash") unless name.is_a?(String)
            text(key, name)
            check(key, item)
          end
        when Array then value.each { |item| check(key, item) }
        when String then text(key, value)
        when Float then refuse(key, "#{value} is no number that can be published") unless value.finite?
        when Integer, true, false, nil then nil
        else refuse(key, "only text, numbers, booleans, undef, lists and hashes are published, and not #{value.class}")
        end
      end

      def text(key, value)
        refuse(key, 'the value holds bytes that are no UTF-8 text') unless value.dup.force_encoding(Encoding::UTF_8).valid_encoding?
      end

      def short(value)
        json = JSON.generate(value)
        json.length > 80 ? "#{json[0, 80]}…" : json
      end

      def refuse(key, why)
        raise Puppet::Error, "cannot publish #{key}: #{why}"
      end
    end
  end
end
